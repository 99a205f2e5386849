"""Never comes as far as a model."""

import time

time.sleep(600)
