"""What pytest wants to be said at the top: the plugin that runs pytest inside of tests."""

pytest_plugins = ["pytester"]
