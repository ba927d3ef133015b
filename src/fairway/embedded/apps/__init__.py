"""The controllers of the kinds that make other objects: ReplicaSet, Deployment, StatefulSet, CronJob.

Each runs through any API server, as Kubernetes' own do, and changes nothing for what decides: a pod that it makes waits
for its place like any other.
"""

from .cronjob import CronJobs
from .deployment import Deployments
from .replicaset import ReplicaSets
from .statefulset import StatefulSets

APPS = (ReplicaSets, Deployments, StatefulSets, CronJobs)

__all__ = ["APPS", "CronJobs", "Deployments", "ReplicaSets", "StatefulSets"]
