"""Prototxts and caffemodels: schema, text with positions, graph, upgrades."""
