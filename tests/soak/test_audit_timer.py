"""The timer that has a host tell its own audit to Prometheus, under systemd itself."""

import shutil
from pathlib import Path

import prometheus_client

from tests.lab.fleet import fleet
from tests.unit.promtool import promtool

FOLDER = "/var/lib/node_exporter"
_CONFIGURE = f"""
mkdir -p /etc/hbatune {FOLDER}
printf '[metrics]\\ntextfile = "{FOLDER}"\\n' >/etc/hbatune/hbatune.toml
tar -C /usr/lib/python3/dist-packages -xf /root/library.tar
hbatune install --profile oltp
"""
# Once an hour and at another minute on each host is no time to wait for.
_SOON = """
mkdir -p /run/systemd/system/hbatune-audit.timer.d
printf '[Timer]\\nOnCalendar=\\nOnActiveSec=1s\\nRandomizedDelaySec=0\\n' \
    >/run/systemd/system/hbatune-audit.timer.d/soon.conf
systemctl daemon-reload
systemctl enable --now hbatune-audit.timer
"""
_WRITTEN = f"timeout 300 sh -c 'until test -s {FOLDER}/hbatune-audit.prom; do sleep 1; done'"
_LEFT = "find /etc/systemd /run/systemd/system -name 'hbatune-audit*' -not -path '*.timer.d*'"


def test_timer_writes_prometheus_textfile(tmp_path: Path) -> None:
    library = Path(prometheus_client.__file__).parent
    packed = shutil.make_archive(
        str(tmp_path / "library"), "tar", library.parent, library.name
    )  # what python3-prometheus-client would bring
    with fleet(tmp_path, ["db1"]) as [host]:
        host.put(Path(packed), "/root/library.tar")
        host.ssh(_CONFIGURE)
        enabled = host.ssh("systemctl is-enabled hbatune-audit.timer || true")
        assert enabled.strip() == "disabled", "it is started where that is asked for"

        host.ssh(_SOON)
        host.ssh(_WRITTEN)
        metrics = host.ssh(f"cat {FOLDER}/hbatune-audit.prom")
        promtool("check", "metrics", given=metrics.encode())
        assert 'profile="oltp"' in metrics
        assert "hbatune_audit_snapshot_timestamp_seconds{" in metrics
        result = host.ssh("systemctl show --property=Result --value hbatune-audit.service")
        assert result.strip() == "success", "drift is no failure"

        host.ssh("hbatune uninstall")
        assert host.ssh(_LEFT) == ""
