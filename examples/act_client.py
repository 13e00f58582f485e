"""A robot's control loop with the policy in a server.

    sooner act serve                      # in one shell; or --model, --head, --method ...
    python examples/act_client.py         # in another

The robot here is the `table` world of sooner-lab, which needs no simulator. On a real one, send the
camera's picture and give the actions to the motors.
"""

from __future__ import annotations

import argparse

import httpx
import numpy as np

from sooner.robots import make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", help="if the server wants one")
    parser.add_argument("--env", default="table")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()

    headers = {} if given.token is None else {"Authorization": f"Bearer {given.token}"}
    client = httpx.Client(base_url=given.url, headers=headers, timeout=60)
    robot = make(given.env)
    robot.reset(seed=0)
    steps, is_over, is_done = 0, False, False
    while steps < given.steps and not is_over:
        request = {"image": robot.picture().tolist(), "instruction": robot.instruction}
        actions = client.post("/act", json=request).raise_for_status().json()
        for action in np.atleast_2d(actions)[: given.steps - steps]:  # some policies say several
            outcome = robot.step(action)
            steps, is_over, is_done = steps + 1, outcome.over, outcome.success
            if is_over:
                break
    robot.close()
    print(f"'{robot.instruction}': {'done' if is_done else 'not done'}, {steps} actions")


if __name__ == "__main__":
    main()
