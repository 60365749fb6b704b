"""What users may set in `environment.pod_spec`: fields with types, which are rendered anew; anything else is refused.

The master judges it at submit, the agent of a Kubernetes cluster once more before it makes a pod. What that agent's
operator chooses (claims, secrets, labels, accounts, devices, …) the agent alone can judge. No cluster is asked here.
"""

from detlab.schemas.expconf.podspec.judging import mistakes, rendered

__all__ = ["mistakes", "rendered"]
