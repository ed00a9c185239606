# Copyright: the hbatune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of all modules' documentation: each runs hbatune on a Linux host."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment hbatune.hbatune.command."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The command, a name or a path.
    type: str
    default: hbatune
attributes:
  check_mode:
    support: full
  platform:
    platforms: linux
    support: full
"""
