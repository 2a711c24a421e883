"""Nsight Systems exports: SQLite files and folders of Parquet or Arrow files, one a table."""
