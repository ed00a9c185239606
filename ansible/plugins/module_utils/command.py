# Copyright: the hbatune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs hbatune on the host and reads its JSON."""

from __future__ import annotations

import json
import typing as t

from ansible.module_utils.basic import AnsibleModule

DONE, FOUND, NO_DAEMON = 0, 1, 4
"""Exit codes of hbatune (its docs/exit-codes.md): success, findings, no daemon."""

WRITTEN = "written"
SETTLED = ("kept", "written", None)
"""Outcomes of successful rows, or None if no write was needed."""


class Hbatune:
    """The command of that name on this host; what it refuses ends the module with its message."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        self._program = module.get_bin_path(module.params["executable"], required=True)

    def ask(self, *words: str, codes: tuple[int, ...] = (DONE, FOUND)) -> tuple[int, t.Any]:
        """Return the exit code and the JSON document of ``hbatune WORDS --json``."""
        code, out, said = self._run(*words, "--json")
        if code not in codes:
            self._fail(words, code, said)
        try:
            return code, json.loads(out)
        except ValueError:
            self._module.fail_json(
                msg=f"hbatune {words[0]} printed no JSON; is this hbatune too old?",
                rc=code,
                stdout=out,
                stderr=said,
            )

    def do(self, *words: str) -> str:
        """Run ``hbatune WORDS``, which must succeed; return its output."""
        code, out, said = self._run(*words)
        if code != DONE:
            self._fail(words, code, said)
        return out + said

    def _run(self, *words: str) -> tuple[int, str, str]:
        return self._module.run_command([self._program, *words])

    def _fail(self, words: tuple[str, ...], code: int, said: str) -> t.NoReturn:
        why = "\n".join(line for line in said.splitlines() if line.strip())
        self._module.fail_json(
            msg=f"hbatune {words[0]} ended with {code}: {why or 'no message'}",
            rc=code,
            stderr=said,
        )


def lines(rows: list[dict[str, t.Any]], value: str) -> str:
    """Return the field ``value`` of each row as text for Ansible's diff, a line each."""
    listed = [f"{row['target']} {row['setting']}: {row[value]}\n" for row in rows]
    return "".join(sorted(listed))
