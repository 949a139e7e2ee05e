"""The rules by which ranks exchange what they learn."""
