from collections.abc import Iterator

import pytest
from plane import Plane, control_plane, missing


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    if why := missing():
        pytest.skip(why)
    with control_plane(tmp_path_factory.mktemp("plane")) as found:
        yield found
