from collections.abc import Iterator

import pytest
from plane import Plane, control_plane, missing


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With the controllers of Kubernetes that a module names in CONTROLLERS, too."""
    if why := missing():
        pytest.skip(why)
    more = getattr(request.module, "CONTROLLERS", ())
    with control_plane(tmp_path_factory.mktemp("plane"), more=more) as found:
        yield found
