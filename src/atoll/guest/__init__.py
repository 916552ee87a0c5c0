"""What runs inside the wall. Standard library only, Python 3.8 or newer; imports nothing but `wire`."""
