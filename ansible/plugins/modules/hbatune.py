#!/usr/bin/python
# Copyright: the hbatune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hbatune
short_description: Apply a profile of hbatune, or restore all original values
version_added: "1.0.0"
description:
  - Applies a profile of hbatune to storage adapters and their disks, restores the original values,
    or removes hbatune's files.
  - Requires hbatune on the host; the role P(hbatune.hbatune.hbatune#role) installs it.
  - In check mode nothing is written; the diff shows each setting.
author:
  - The hbatune authors (@hbatune)
options:
  state:
    description:
      - V(applied) applies the profile.
      - V(rolled_back) restores the original values. hbatune then skips these O(targets) until an
        apply names them.
      - V(absent) restores the original values, stops the daemon and removes the files of
        C(hbatune install) and C(hbatune apply). An administrator's configuration is kept.
    type: str
    choices: [applied, rolled_back, absent]
    default: applied
  profile:
    description:
      - The profile to apply; it becomes the active one. Without it the active one is applied.
    type: str
  targets:
    description:
      - Targets to tune or restore, by any name that hbatune accepts, such as V(sda).
      - Without it, everything that the profile covers.
    type: list
    elements: str
    default: []
  probe:
    description:
      - Whether to measure with and without the change if the profile changes a setting.
    type: bool
    default: true
  verify:
    description:
      - Measure longer, and revert regressions beyond the profile's tolerance.
    type: bool
    default: false
  keep_worse:
    description:
      - Keep settings that regressed. The task still fails.
    type: bool
    default: false
  once:
    description:
      - Do not change the active profile.
    type: bool
    default: false
  allow_reset:
    description:
      - Allow settings whose write resets an adapter.
    type: bool
    default: false
attributes:
  diff_mode:
    support: full
extends_documentation_fragment:
  - hbatune.hbatune.command
  - ansible.builtin.action_common_attributes
seealso:
  - module: hbatune.hbatune.hbatune_info
"""

EXAMPLES = r"""
- name: Tune for databases, and report the effect
  hbatune.hbatune.hbatune:
    profile: oltp

- name: Only two disks, and revert regressions
  hbatune.hbatune.hbatune:
    profile: oltp
    targets: [sda, sdb]
    verify: true

- name: Restore the original values
  hbatune.hbatune.hbatune:
    state: rolled_back
"""

RETURN = r"""
profile:
  description: The profile that was applied.
  returned: when O(state=applied)
  type: str
  sample: oltp
rows:
  description:
    - The settings to change or restore, as C(hbatune apply --json) and
      C(hbatune rollback --json) print them.
  returned: always
  type: list
  elements: dict
  sample:
    - target: sda
      setting: nr_requests
      current: 256
      value: 2048
      outcome: written
verdicts:
  description: Measurements with and without the change, if any.
  returned: when O(state=applied) and something was changed
  type: list
  elements: dict
regressed:
  description: Whether a comparison shows a regression.
  returned: when O(state=applied)
  type: bool
left_alone:
  description: Disks that hbatune cannot classify.
  returned: when O(state=applied)
  type: list
  elements: dict
removed:
  description: Files and folders that were removed, or would be.
  returned: when O(state=absent)
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hbatune.hbatune.plugins.module_utils.command import (
    FOUND,
    SETTLED,
    WRITTEN,
    Hbatune,
    lines,
)

REGRESSED = "regressed"
NO_TIME = "no_time"


def options(params: dict[str, t.Any]) -> list[str]:
    """Return the options of `apply` beyond profile and targets."""
    given = {
        "--no-probe": not params["probe"],
        "--verify": params["verify"],
        "--keep-worse": params["keep_worse"],
        "--once": params["once"],
        "--allow-reset": params["allow_reset"],
    }
    return [option for option, on in given.items() if on]


def apply(module: AnsibleModule, hbatune: Hbatune) -> dict[str, t.Any]:
    """Apply the profile; return the module's result."""
    params = module.params
    asked = ["--profile", params["profile"]] if params["profile"] else []
    asked += params["targets"]
    plan = hbatune.ask("diff", *asked)[1]
    profile = plan["summary"]["profile"]
    drift = [row for row in plan["rows"] if row["state"] == "drift"]
    active = hbatune.ask("profiles")[1]["active"]
    switched = not params["once"] and active != profile
    result = {
        "profile": profile,
        "rows": drift,
        "left_alone": plan.get("left_alone", []),
        "regressed": False,
        "changed": bool(drift) or switched,
    }
    if module.check_mode or not result["changed"]:
        return with_diff(result, drift, "value", (active, profile) if switched else None)
    code, done = hbatune.ask("apply", *asked, *options(params))
    rows = [row for row in done["rows"] if row["state"] == "drift" or row.get("outcome")]
    touched = [row for row in rows if row["outcome"] not in ("kept", None)]
    result["rows"] = touched
    result["verdicts"] = done.get("verdicts", [])
    result["regressed"] = any(
        (each.get("verdict") or {}).get("word") == REGRESSED for each in result["verdicts"]
    )
    result["changed"] = switched or any(row["outcome"] == WRITTEN for row in touched)
    written = [row for row in touched if row["outcome"] == WRITTEN]
    result = with_diff(result, written, "value", (active, profile) if switched else None)
    if code == FOUND:
        module.fail_json(msg=failure(result, done), **result)
    return result


def failure(result: dict[str, t.Any], done: dict[str, t.Any]) -> str:
    """Return why an apply did not end well; ``done`` is its document."""
    failed = [row for row in result["rows"] if row["outcome"] not in SETTLED]
    parts = []
    if result["regressed"]:
        worse = [each for each in result["verdicts"] if each["verdict"]["word"] == REGRESSED]
        named = ", ".join(sorted({each["target"] for each in worse}))
        parts.append(f"profile {result['profile']} regressed on {named}")
    for pair in done.get("probes", []):
        if pair["before"]["reason"] == NO_TIME:
            parts.append(f"there was no time to measure {pair['before']['target']}")
    for row in failed[:5]:
        why = f": {row['limit']}" if row.get("limit") else ""
        parts.append(f"{row['target']} {row['setting']}: {row['outcome']}{why}")
    if len(failed) > 5:
        parts.append(f"{len(failed) - 5} more in rows")
    return "; ".join(parts) or "hbatune apply ended with 1"


def with_diff(
    result: dict[str, t.Any],
    rows: list[dict[str, t.Any]],
    after: str,
    profiles: tuple[t.Any, t.Any] | None = None,
) -> dict[str, t.Any]:
    """Return the result with Ansible's diff of these rows, and of the active profile."""
    before_text, after_text = lines(rows, "current"), lines(rows, after)
    if profiles is not None:
        before_text += f"active profile: {profiles[0] or 'none'}\n"
        after_text += f"active profile: {profiles[1] or 'none'}\n"
    return dict(result, diff={"before": before_text, "after": after_text})


def roll_back(module: AnsibleModule, hbatune: Hbatune) -> dict[str, t.Any]:
    """Restore the original values; return the module's result."""
    params = module.params
    reset = ["--allow-reset"] if params["allow_reset"] else []
    known = hbatune.ask("rollback", "--dry-run", *params["targets"], *reset)[1]["rows"]
    rows = [row for row in known if row["outcome"] is None]
    active = None if params["targets"] else hbatune.ask("profiles")[1]["active"]
    result = {"rows": rows, "changed": bool(rows) or active is not None}
    profiles = (active, None) if active is not None else None
    # A named target is recorded as skipped, even if there is nothing to restore.
    if module.check_mode or not (result["changed"] or params["targets"]):
        return with_diff(result, rows, "before", profiles)
    code, done = hbatune.ask("rollback", *params["targets"], *reset)
    result["rows"] = [row for row in done["rows"] if row["outcome"] != "kept"]
    written = [row for row in result["rows"] if row["outcome"] == WRITTEN]
    result = with_diff(result, written, "before", profiles)
    if code == FOUND:
        lost = [row for row in result["rows"] if row["outcome"] != WRITTEN and not row["gone"]]
        named = ", ".join(f"{row['target']} {row['setting']}" for row in lost[:5]) or "see rows"
        module.fail_json(msg=f"not all values could be restored: {named}", **result)
    return result


def remove(module: AnsibleModule, hbatune: Hbatune) -> dict[str, t.Any]:
    """Restore the original values and remove hbatune's files; return the module's result."""
    rows = [
        row for row in hbatune.ask("rollback", "--dry-run")[1]["rows"] if row["outcome"] is None
    ]
    active = hbatune.ask("profiles")[1]["active"]
    removal = hbatune.ask("uninstall", "--dry-run")[1]
    removed = removal["files"] + removal["folders"]
    result = {"rows": rows, "removed": removed, "changed": bool(rows or removed or active)}
    result = with_diff(result, rows, "before", (active, None) if active else None)
    result["diff"]["before"] += "".join(f"{path}\n" for path in removed)
    if result["changed"] and not module.check_mode:
        hbatune.do("uninstall")
    return result


def main() -> None:
    """Bring the host to the requested state."""
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["applied", "rolled_back", "absent"], "default": "applied"},
            "profile": {"type": "str"},
            "targets": {"type": "list", "elements": "str", "default": []},
            "probe": {"type": "bool", "default": True},
            "verify": {"type": "bool", "default": False},
            "keep_worse": {"type": "bool", "default": False},
            "once": {"type": "bool", "default": False},
            "allow_reset": {"type": "bool", "default": False},
            "executable": {"type": "str", "default": "hbatune"},
        },
        supports_check_mode=True,
    )
    state, params = module.params["state"], module.params
    if params["verify"] and not params["probe"]:
        module.fail_json(msg="verify compares by probing, which probe=false forbids")
    if state == "absent" and params["targets"]:
        module.fail_json(msg="state=absent is about the whole host, and takes no targets")
    ways = {"applied": apply, "rolled_back": roll_back, "absent": remove}
    module.exit_json(**ways[state](module, Hbatune(module)))


if __name__ == "__main__":
    main()
