"""What a run says of itself."""

from __future__ import annotations

import pytest

from etl.run.record import of_waiting


@pytest.mark.parametrize(("waited", "seconds"), [(0.0, 0.0), (0.9, 1.0), (30.0, 60.0), (2.0, 900.0)])
def test_parts_that_fetch_longer_than_they_wait_for_the_device_are_no_news(waited: float, seconds: float) -> None:
    assert of_waiting(waited, seconds) == []


def test_parts_that_mostly_wait_for_the_device_are_told() -> None:
    (told,) = of_waiting(31.25, 60.0)
    assert told["code"] == "device-wait"
    assert str(told["text"]).startswith("parts waited 31.2 s of 60.0 s for the device")
