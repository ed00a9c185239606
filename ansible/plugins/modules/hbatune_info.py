#!/usr/bin/python
# Copyright: the hbatune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hbatune_info
short_description: Storage adapters, drift and findings of a host, as hbatune sees them
version_added: "1.0.0"
description:
  - Reads facts and changes nothing.
author:
  - The hbatune authors (@hbatune)
options:
  gather:
    description:
      - V(facts) are adapters and disks, V(diff) is the difference from the profile, V(check) are
        problems of the host, V(status) is the status of the daemon.
    type: list
    elements: str
    choices: [facts, diff, check, status]
    default: [facts, diff, check, status]
  profile:
    description:
      - The profile to compare with; without it, the active one. If there is neither, V(diff) and
        V(check) are omitted.
    type: str
  targets:
    description:
      - Targets to scan; without it, all targets.
    type: list
    elements: str
    default: []
attributes:
  diff_mode:
    support: none
extends_documentation_fragment:
  - hbatune.hbatune.command
  - ansible.builtin.action_common_attributes
seealso:
  - module: hbatune.hbatune.hbatune
"""

EXAMPLES = r"""
- name: Compare the host with its active profile
  hbatune.hbatune.hbatune_info:
    gather: [diff]
  register: comparison

- name: Fail on drift, and if nothing was compared
  ansible.builtin.assert:
    that:
      - comparison.active is not none
      - comparison.compared > 0
      - not comparison.drifted
"""

RETURN = r"""
active:
  description: The active profile, or null.
  returned: always
  type: str
  sample: oltp
drifted:
  description:
    - Whether a setting differs from the profile.
    - It is false as well if nothing was compared, so check RV(compared) first.
  returned: when V(diff) was gathered, if there is a profile
  type: bool
compared:
  description:
    - Number of settings that were read and compared with the profile.
    - Excluded, unreadable and fixed settings do not count. It is 0 without a profile.
  returned: when V(diff) was requested
  type: int
  sample: 62
facts:
  description: Adapters, endpoints and interrupt vectors, as C(hbatune list --json) prints them.
  returned: when requested
  type: dict
diff:
  description: The plan, as C(hbatune diff --json) prints it.
  returned: when requested, if there is a profile
  type: dict
check:
  description: The findings, as C(hbatune check --json) prints them.
  returned: when requested, if there is a profile
  type: dict
status:
  description: The status of the daemon, as C(hbatune status --json) prints it.
  returned: when requested
  type: dict
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hbatune.hbatune.plugins.module_utils.command import (
    DONE,
    FOUND,
    NO_DAEMON,
    Hbatune,
)

COMPARED = ("ok", "drift")
"""States of rows whose value was read and compared with the profile."""


def count_compared(plan: dict[str, t.Any]) -> int:
    """Return the number of settings that hbatune compared with the profile."""
    states = plan["summary"]["states"]
    return sum(states.get(state, 0) for state in COMPARED)


def main() -> None:
    """Gather the requested facts."""
    choices = ["facts", "diff", "check", "status"]
    module = AnsibleModule(
        argument_spec={
            "gather": {
                "type": "list",
                "elements": "str",
                "choices": choices,
                "default": choices,
            },
            "profile": {"type": "str"},
            "targets": {"type": "list", "elements": "str", "default": []},
            "executable": {"type": "str", "default": "hbatune"},
        },
        supports_check_mode=True,
    )
    hbatune, wanted = Hbatune(module), module.params["gather"]
    targets, profile = module.params["targets"], module.params["profile"]
    facts: dict[str, t.Any] = {"active": hbatune.ask("profiles")[1]["active"]}
    if "facts" in wanted:
        facts["facts"] = hbatune.ask("list", *targets)[1]
    if "diff" in wanted:
        facts["compared"] = 0
    profile = profile or facts["active"]
    if profile is not None:
        arguments = ["--profile", profile, *targets]
        if "diff" in wanted:
            code, facts["diff"] = hbatune.ask("diff", *arguments)
            facts["drifted"] = code == FOUND
            facts["compared"] = count_compared(facts["diff"])
        if "check" in wanted:
            facts["check"] = hbatune.ask("check", *arguments)[1]
    if "status" in wanted:
        facts["status"] = hbatune.ask("status", codes=(DONE, FOUND, NO_DAEMON))[1]
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
