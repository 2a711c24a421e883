"""AMD's rocprofv3: JSON, CSV and the rocpd database."""
