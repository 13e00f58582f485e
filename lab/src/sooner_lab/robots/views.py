"""Views of a MuJoCo scene, rendered headless.

One picture has to tell depth too, so the policy's picture is two views above each other: from the
front, and from steeply above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sooner.errors import SoonerError

HALF, WIDTH = 56, 112
FILM = (360, 480)


@dataclass(frozen=True)
class CameraView:
    """Where a camera stands: degrees and metres, as MuJoCo counts them."""

    azimuth: float
    elevation: float
    distance: float
    lookat: tuple[float, float, float]


FRONT = CameraView(270, -12, 0.95, (0.0, 0.70, 0.20))
ABOVE = CameraView(270, -70, 0.95, (0.0, 0.70, 0.10))
FILM_VIEW = CameraView(240, -25, 1.25, (0.0, 0.65, 0.15))
PLAIN = ("SHADOW", "REFLECTION", "SKYBOX", "FOG", "HAZE")
"""What is not rendered in the policy's picture: shadows alone take ten times the rest."""


class SceneRenderer:
    """Renders one model's scenes.

    Args:
        model, data: of MuJoCo; the model's field of view and quality are set here.
    """

    def __init__(self, model: Any, data: Any) -> None:
        import mujoco

        self._mujoco = mujoco
        model.vis.quality.offsamples = 0
        model.vis.quality.shadowsize = 0
        model.vis.global_.fovy = 35
        model.vis.global_.offheight, model.vis.global_.offwidth = FILM
        self.model, self.data = model, data
        self._small: Any = None
        self._large: Any = None

    def settle(self) -> None:
        """Work out again where everything is."""
        self._mujoco.mj_forward(self.model, self.data)

    def picture(self) -> np.ndarray:
        """Both views, uint8 `[112, 112, 3]`."""
        if self._small is None:
            self._small = self._renderer(HALF, WIDTH)
        return np.concatenate([self._render(self._small, view) for view in (FRONT, ABOVE)])

    def film_frame(self) -> np.ndarray:
        """One view for people, uint8 `[360, 480, 3]`."""
        if self._large is None:
            self._large = self._renderer(*FILM)
        return self._render(self._large, FILM_VIEW)

    def close(self) -> None:
        for renderer in (self._small, self._large):
            if renderer is not None:
                renderer.close()
        self._small = self._large = None

    def _renderer(self, height: int, width: int) -> Any:
        try:
            renderer = self._mujoco.Renderer(self.model, height, width)
        except self._mujoco.FatalError as error:
            raise SoonerError(
                f"MuJoCo can't render here ({error}); install libosmesa6 and set MUJOCO_GL=osmesa "
                "before anything imports mujoco"
            ) from error
        for name in PLAIN:
            renderer.scene.flags[getattr(self._mujoco.mjtRndFlag, f"mjRND_{name}")] = 0
        return renderer

    def _camera(self, view: CameraView) -> Any:
        camera = self._mujoco.MjvCamera()
        camera.type = self._mujoco.mjtCamera.mjCAMERA_FREE
        camera.azimuth, camera.elevation = view.azimuth, view.elevation
        camera.distance, camera.lookat[:] = view.distance, view.lookat
        return camera

    def _render(self, renderer: Any, view: CameraView) -> np.ndarray:
        renderer.update_scene(self.data, self._camera(view))
        return renderer.render().copy()
