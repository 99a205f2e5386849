"""Raises before it touches a model."""

import a_package_that_nobody_has

a_package_that_nobody_has.run()
