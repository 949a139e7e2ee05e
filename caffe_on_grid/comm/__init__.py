"""Ranks and messages: communicators, and the authenticated channel for reports."""
