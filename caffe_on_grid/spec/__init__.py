"""The documents that cross a process border: frozen dataclasses and their strict JSON form."""
