"""Many runs: which cells there are, run side by side, confirmed and made smaller."""
