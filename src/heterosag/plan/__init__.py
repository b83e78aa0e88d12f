"""Plans: everything public about the rounds of an epoch, and what follows from it.

`Plan` is the frozen plan; `design` says which subgroups code each segment together, `layout` what a user sends,
`sharing` who holds whose shares, `assignment` who is in which subgroup, `dropout` how likely a leak or a failed round
is, `costs` what a plan costs in bits, `summary` all of it in JSON types, `cohorts`
how many users are split into rounds of bounded size.
"""

from heterosag.plan.assignment import Subgroup
from heterosag.plan.checks import User
from heterosag.plan.codec import PLAN_VERSION
from heterosag.plan.cohorts import CohortPlan
from heterosag.plan.layout import Cell, PlannedBlock, PlannedSegment
from heterosag.plan.plan import Plan

__all__ = ["PLAN_VERSION", "Cell", "CohortPlan", "Plan", "PlannedBlock", "PlannedSegment", "Subgroup", "User"]
