"""Tests of the manifest layer."""
