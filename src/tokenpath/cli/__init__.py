"""The command line: one file a command, each mirrors one function of `tokenpath.api`."""
