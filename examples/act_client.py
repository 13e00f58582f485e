"""A robot's control loop with the policy in a server, as LeRobot's loops are written.

    sooner act serve                      # in one shell; or --model, --head, --method ...
    python examples/act_client.py         # in another

The robot here is the `table` world, which needs no simulator. On a real one, fill `observation`
with the camera's picture and give what `select_action` returns to the motors.
"""

from __future__ import annotations

import argparse

from sooner.robots import make
from sooner.tasks.act import RemotePolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", help="if the server wants one")
    parser.add_argument("--unnorm-key", help="if the policy knows several robots")
    parser.add_argument("--deadline-ms", type=float, help="later actions are of no use")
    parser.add_argument("--env", default="table")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()

    policy = RemotePolicy(
        given.url,
        token=given.token,
        unnorm_key=given.unnorm_key,
        deadline_ms=given.deadline_ms,
    )
    robot = make(given.env)
    robot.reset(seed=0)
    policy.reset()
    steps, is_over, is_done = 0, False, False
    while steps < given.steps and not is_over:
        observation = {"observation.images.top": robot.picture(), "task": robot.instruction}
        outcome = robot.step(policy.select_action(observation))
        steps, is_over, is_done = steps + 1, outcome.over, outcome.success
    robot.close()
    print(f"'{robot.instruction}': {'done' if is_done else 'not done'}, {steps} actions")


if __name__ == "__main__":
    main()
