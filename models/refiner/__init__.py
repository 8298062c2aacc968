"""Refiners: causal language models that rewrite a prompt, decoded token by token."""
