"""Plugins only: each fixture file is one concern."""

pytest_plugins = [
    "tests.fix_signals",
    "tests.fix_secrets",
    "tests.fix_hypothesis",
    "tests.fix_cache",
    "tests.fix_servers",
    "tests.fix_mariadb",
    "tests.fix_s3",
    "tests.fix_proxy",
    "tests.fix_frameworks",
    "tests.fix_gpuwheels",
]
