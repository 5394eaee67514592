"""Layers for text and categories inside of exported files."""
