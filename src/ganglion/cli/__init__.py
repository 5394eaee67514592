"""The command line, a file a command; `app` puts them together."""
