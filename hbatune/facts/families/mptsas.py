"""LSI Fusion-MPT SAS 1064, 1068 and 1078."""

from hbatune.facts.family import Family

FAMILY = Family(
    name="mptsas",
    drivers=frozenset({"mptsas"}),
    firmware=("version_fw",),
)
