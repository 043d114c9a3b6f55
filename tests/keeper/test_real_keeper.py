"""The real keeper keeps the contract that the fake one keeps."""

from __future__ import annotations

import pytest

from tests.keeper.conftest import RealStage
from tests.keeper.contract import KeeperContract


class TestRealKeeper(KeeperContract):
    @pytest.fixture
    def stage(self, real_stage: RealStage) -> RealStage:
        return real_stage
