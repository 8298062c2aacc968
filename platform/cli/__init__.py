"""The mutoscope command."""
