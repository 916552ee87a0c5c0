"""The protocol between host and guest, without I/O. Standard library only, Python >= 3.8: the guest uses it too."""
