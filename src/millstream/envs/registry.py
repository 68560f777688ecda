"""Environments by name: built in, the user's own, Gymnasium's, Atari's, EnvPool's."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from millstream.core.errors import ConfigError, EnvError, MillError, MissingPart, UnknownName
from millstream.core.ports import Env
from millstream.envs import atari
from millstream.envs.cartpole import CartPole
from millstream.envs.envpool import PREFIX, envpool, known
from millstream.envs.guarded import guarded
from millstream.envs.gymnasium import Gymnasium, summary
from millstream.envs.snake import Snake
from millstream.envs.vector import vectorise

VECTORS = ("auto", "native", "sync", "process")
"""How slots are stepped: as one vector of the environment's own where there is one, in turn, or a process each."""
BUILT_IN: Mapping[str, tuple[Callable[..., Any], str]] = {
    "CartPole-v1": (CartPole, "balance a pole on a cart; vectorised here, equal to Gymnasium's"),
    "Snake-v0": (Snake, "eat and do not bite yourself, seeing only what is near"),
    "SnakeImages-v0": (partial(Snake, view="image"), "the same Snake, seen as a small image"),
}


def make(
    id: str,
    slots: int,
    args: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    vector: str = "auto",
    stack: int | None = None,
    render: bool = False,
) -> Env:
    """An environment of so many slots.

    `id` is a built-in name, a Gymnasium name, `ALE/...`, `envpool:...`, or `module:factory` of your own,
    whose factory makes one `gymnasium.Env`, or, where it takes `slots` (or `num_envs`), all of them.
    `wrappers` are `module:function` names applied to each single environment. `stack` is how many
    frames a policy sees at once, where that is not the environment's own default.
    """
    if vector not in VECTORS:
        raise ConfigError(f"vector must be one of {', '.join(VECTORS)}, got {vector!r}")
    if slots < 1:
        raise ConfigError(f"an environment needs at least one slot, got {slots}")
    if stack is not None and stack < 1:
        raise ConfigError(f"stack must be at least 1, got {stack}")
    args = dict(args or {})
    if id.startswith(PREFIX):
        _no_wrappers(id, wrappers)
        return envpool(id.removeprefix(PREFIX), slots, args, stack, render)
    if id in BUILT_IN and _fits(id, args, wrappers, vector):
        return _restacked(_call(id, BUILT_IN[id][0], slots=slots, **args), stack)
    if ":" in id:
        return _custom(id, slots, args, wrappers, vector, stack, render)
    return _gymnasium(id, slots, args, wrappers, vector, stack, render)


def check(id: str, wrappers: Sequence[str] = ()) -> None:
    """Whether there is such an environment, as far as can be said without making it; what is wrong is raised."""
    if id.startswith(PREFIX):
        known(id.removeprefix(PREFIX))
    elif id not in BUILT_IN:
        _factory(id) if ":" in id else _registered(id)
    for name in wrappers:
        _wrapper(name)


def names() -> list[tuple[str, str, str]]:
    """Every known environment: its name, one line about it, and which extra it needs."""
    listed = [(id, line, "") for id, (_, line) in BUILT_IN.items()]
    listed.append((f"{PREFIX}<name>", "any environment of EnvPool, by its name there", "envpool"))
    listed.append(("<module>:<factory>", "your own environment", ""))
    with suppress(MissingPart):  # what is not installed is not listed
        atari.register()
    try:
        registry = _registry()
    except MissingPart:
        return listed
    ids = sorted(set(registry) - set(BUILT_IN))
    return listed + [(id, f"Gymnasium's {id}", _needs(registry[id])) for id in ids]


def find(id: str) -> Callable[..., Any] | None:
    """What stands under `module:factory`; None when that module has no such callable."""
    found = getattr(_module(id), id.rpartition(":")[2], None)
    return found if callable(found) else None


def _fits(id: str, args: Mapping[str, Any], wrappers: Sequence[str], vector: str) -> bool:
    """Whether the built-in one can serve; CartPole asked for in another way is Gymnasium's."""
    if id == "CartPole-v1":
        return not args and not wrappers and vector in ("auto", "native")
    _no_wrappers(id, wrappers)
    return True


def _gymnasium(
    id: str, slots: int, args: Mapping[str, Any], wrappers: Sequence[str], vector: str, stack: int | None, render: bool
) -> Env:
    spec = _registered(id)
    game = "ale_py" in str(spec.entry_point)
    own = spec.vector_entry_point is not None and not wrappers and not (render and game)
    if vector == "native" and not own:
        raise ConfigError(f"{id} has no vector of its own for this use; set vector to sync or process")
    with _Making(id, args):
        if own and vector in ("auto", "native"):
            whole = atari.native(id, slots, args) if game else _native(id, slots, args, render)
        else:
            maker = atari.maker(id, args, render) if game else partial(_single, id, args, render)
            whole = vectorise(partial(_wrapped, maker, wrappers), slots, "sync" if vector == "auto" else vector)
    default = atari.STACK if game else 1
    limit = args.get("max_episode_steps", spec.max_episode_steps)
    return Gymnasium(whole, id, stack or default, limit, spec.reward_threshold)


def _custom(
    id: str, slots: int, args: Mapping[str, Any], wrappers: Sequence[str], vector: str, stack: int | None, render: bool
) -> Env:
    factory = _factory(id)
    if factory is None:
        return _gymnasium(id.rpartition(":")[2], slots, args, wrappers, vector, stack, render)
    takes = _parameters(factory)
    if render and "render_mode" in takes:
        args = {"render_mode": "rgb_array", **args}
    for lead in ("slots", "num_envs"):
        if lead in takes:
            _no_wrappers(id, wrappers)
            return _adopted(id, _call(id, factory, **{lead: slots}, **args), slots, stack)
    maker = partial(_wrapped, partial(_call, id, factory, **args), wrappers)
    with _Making(id, args):
        probe = maker()
        if hasattr(probe, "num_envs") or not _single_env(id, probe):
            return _adopted(id, probe, slots, stack)
        probe.close()
        whole = vectorise(maker, slots, "process" if vector == "process" else "sync")
    limits = getattr(probe, "spec", None)
    return Gymnasium(
        whole,
        id,
        stack or 1,
        getattr(limits, "max_episode_steps", None),
        getattr(limits, "reward_threshold", None),
    )


def _factory(id: str) -> Callable[..., Any] | None:
    """What stands under `module:factory`; None when that module registered this name with Gymnasium instead."""
    place, _, name = id.rpartition(":")
    factory = find(id)
    if factory is None and name not in _registry():
        here = vars(_module(id)).items()
        own = [f"{place}:{key}" for key, made in here if callable(made) and made.__module__ == place]
        raise UnknownName.of("environment", id, own)
    return factory


def _single_env(id: str, made: Any) -> bool:
    """Whether this is one environment in Gymnasium's sense; if it is one without its spaces, that is said."""
    gymnasium = sys.modules.get("gymnasium")  # whoever derives from its Env has imported it
    lacks = [name for name in ("observation_space", "action_space") if getattr(made, name, None) is None]
    if lacks and (len(lacks) == 1 or (gymnasium and isinstance(made, gymnasium.Env))):
        raise EnvError(f"{id} lacks {' and '.join(lacks)}; set {'them' if len(lacks) > 1 else 'it'} in __init__")
    return not lacks


def _adopted(id: str, made: Any, slots: int, stack: int | None) -> Env:
    """What a user's factory gave for all slots, behind our port."""
    if hasattr(made, "single_observation_space"):
        made = Gymnasium(made, id, stack or 1)
    elif not all(hasattr(made, name) for name in ("spec", "slots", "reset", "step")):
        raise EnvError(f"{id} gave a {type(made).__name__}; expected a gymnasium Env, VectorEnv or a millstream Env")
    if made.slots != slots:
        raise EnvError(f"{id} has {made.slots} slots, {slots} were asked for; let its factory take `slots`")
    return guarded(_restacked(made, stack), id)


def _restacked(env: Any, stack: int | None) -> Env:
    if stack is not None and stack != env.spec.stack:
        from dataclasses import replace

        env.spec = replace(env.spec, stack=stack)
    made: Env = env
    return made


def _native(id: str, slots: int, args: Mapping[str, Any], render: bool) -> Any:
    import gymnasium

    picture = {"render_mode": "rgb_array"} if render else {}
    return gymnasium.make_vec(id, slots, vectorization_mode="vector_entry_point", **args, **picture)


def _single(id: str, args: Mapping[str, Any], render: bool) -> Any:
    import gymnasium

    # The adapter makes the same checks for less, so Gymnasium's own are left out.
    picture = {"render_mode": "rgb_array"} if render else {}
    return gymnasium.make(id, disable_env_checker=True, **{**picture, **args})


def _wrapped(maker: Callable[[], Any], wrappers: Sequence[str]) -> Any:
    env = maker()
    for name in wrappers:
        try:
            env = _wrapper(name)(env)
        except MillError:
            raise
        except Exception as error:
            raise EnvError(f"the wrapper {name} failed: {summary(error)}") from error
        if not all(hasattr(env, method) for method in ("reset", "step")):
            what = "nothing" if env is None else f"a {type(env).__name__}"
            raise EnvError(f"the wrapper {name} gave {what} back; it should return an environment")
    return env


def _wrapper(name: str) -> Callable[..., Any]:
    wrapper = find(name)
    if wrapper is None:
        raise UnknownName(f"unknown wrapper {name!r}; a wrapper is module:function and takes an environment")
    return wrapper


def _module(name: str) -> Any:
    """The module before the colon: a dotted name, or a file ending in .py."""
    place = name.rpartition(":")[0]
    if not place:
        raise UnknownName(f"{name!r} has no module; write module:function")
    try:
        if place.endswith(".py"):
            return _file(Path(place))
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # a command's own path does not hold the folder it was called in
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UnknownName(f"there is no module {place!r} for {name!r}; is it on PYTHONPATH?") from error
        raise MissingPart(f"{name} needs {error.name}, which is not installed") from error
    except MillError:
        raise
    except Exception as error:
        raise EnvError(f"{place} cannot be imported: {summary(error)}{_where(error)}") from error


def _where(error: Exception) -> str:
    """The line that raised it; a syntax error says that itself."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
    )


def _file(path: Path) -> Any:
    # A stable name, so that a class made here is found again by another process that imports the same file.
    name = f"millstream_user_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UnknownName(f"there is no file {str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _registered(id: str) -> Any:
    """Gymnasium's entry of that name."""
    registry = _registry()
    if id not in registry:
        try:
            atari.register()
        except MissingPart:
            if id.startswith("ALE/"):
                raise
    if id not in registry:
        raise UnknownName.of("environment", id, {*BUILT_IN, *registry}, "(your own: module:factory)")
    return registry[id]


def _registry() -> Mapping[str, Any]:
    try:
        import gymnasium
    except ImportError as error:
        raise MissingPart("gymnasium is not installed; run: pip install gymnasium") from error
    registry: Mapping[str, Any] = gymnasium.registry
    return registry


def _needs(spec: Any) -> str:
    """The extra that a Gymnasium environment needs, told by where it lives."""
    entry = f"{spec.entry_point}"
    places = {"ale_py": "atari", "box2d": "box2d", "mujoco": "mujoco"}
    return next((extra for place, extra in places.items() if place in entry), "")


def _extra(id: str) -> str:
    """The extra of a name that Gymnasium knows; nothing of any other."""
    registry = _registry() if "gymnasium" in sys.modules else {}
    return _needs(registry[id]) if id in registry else ""


def _no_wrappers(id: str, wrappers: Sequence[str]) -> None:
    if wrappers:
        raise ConfigError(f"{id} steps all its slots at once; wrappers {list(wrappers)} need a single gymnasium Env")


def _parameters(factory: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def _call(id: str, factory: Callable[..., Any], **kwargs: Any) -> Any:
    with _Making(id, kwargs):
        return factory(**kwargs)


class _Making:
    """Turns whatever goes wrong while an environment is made into one line."""

    def __init__(self, id: str, args: Mapping[str, Any]) -> None:
        self._id = id
        self._args = {name: value for name, value in args.items() if name not in ("slots", "num_envs")}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None or isinstance(error, MillError) or not isinstance(error, Exception):
            return
        if type(error).__name__ == "DependencyNotInstalled" or isinstance(error, ImportError):
            extra = _extra(self._id)
            if extra:
                raise MissingPart.of(f"what {self._id} needs", extra) from error
            raise MissingPart(f"{self._id} needs a package that is not installed: {error}") from error
        if isinstance(error, TypeError) and "argument" in str(error):
            raise ConfigError(
                f"{self._id} does not take these arguments {self._args}: {str(error).splitlines()[0]}"
            ) from error
        raise EnvError(f"{self._id} could not be made: {summary(error)}") from error
