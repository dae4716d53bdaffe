"""Tests of the pipeline's stages."""
