"""Every crash state of one recorded run."""
