"""Many runs: choosing the cells, running them side by side, confirming findings and making them smaller."""
