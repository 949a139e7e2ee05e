"""Nets and solvers behind one contract."""
