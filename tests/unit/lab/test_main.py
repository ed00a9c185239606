"""What `make demo` boots by itself."""

import pytest

from tests.lab import __main__ as lab


@pytest.mark.parametrize(
    ("codename", "expected"), [("bookworm", "6.12"), ("trixie", "newest"), (None, "6.12")]
)
def test_demo_boots_kernel_of_host(
    monkeypatch: pytest.MonkeyPatch, codename: str | None, expected: str
) -> None:
    release = {"VERSION_CODENAME": codename} if codename else {}
    booted: list[str] = []

    def find_series(name: str) -> str:
        booted.append(name)
        return name

    monkeypatch.setattr(lab, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(lab, "require_lab", lambda: None)
    monkeypatch.setattr(lab, "emulator", lambda: None)
    monkeypatch.setattr(lab, "list_releases", lambda: ["9.9.1+deb13-amd64"])
    monkeypatch.setattr(lab, "find_series", find_series)
    monkeypatch.setattr(lab, "_terminal", lambda series, topology, script: 0)
    assert lab.main(["run", "demo.sh"]) == 0
    assert booted == [expected]
