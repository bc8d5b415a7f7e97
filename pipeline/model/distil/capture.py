"""What an encoder computes on its way: hidden states, and one layer's queries, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.model.layers import encoder_layers
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from transformers import PreTrainedModel

# As BERT and its relatives, DistilBERT, and MPNet call them.
_SEPARATE = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v"))
_JOINED = "Wqkv"  # ModernBERT's, before positions are turned into them
_TURNED = ("longformer",)  # its projections have other shapes, and two sorts of each


class Capture:
    """Keeps, of each pass in training, what was asked for; `take` hands it out once.

    `always` keeps it in evaluation too, as of a teacher.
    """

    def __init__(
        self, encoder: PreTrainedModel, *, hidden: bool, layer: int | None, always: bool = False
    ) -> None:
        self._encoder, self._always = encoder, always
        self._hidden: tuple[Tensor, ...] = ()
        self._kept: dict[str, Tensor] = {}
        self._hooks: list[Any] = []
        if hidden:
            self._hooks.append(encoder.register_forward_pre_hook(self._ask, with_kwargs=True))
            self._hooks.append(encoder.register_forward_hook(self._keep_hidden))
        if layer is not None:
            self._names = self._hook_projections(encoder, layer)

    def take(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Hidden states `(B, T, H)`, embeddings first; and queries, keys, values `(B, T, H)`."""
        hidden, kept = self._hidden, self._kept
        self._hidden, self._kept = (), {}
        if _JOINED in kept:
            return hidden, tuple(kept[_JOINED].chunk(3, dim=-1))
        return hidden, tuple(kept[name] for name in self._names) if kept else ()

    def close(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _hook_projections(self, encoder: PreTrainedModel, layer: int) -> tuple[str, ...]:
        layers = encoder_layers(encoder)
        family = encoder.config.model_type
        if not layers or family in _TURNED:
            raise ConfigError(
                f"distil.relations: got an encoder of the family {family!r}, whose queries and "
                f"keys cannot be told apart; leave relations out"
            )
        found = _projections(layers[layer])
        if not found:
            raise ConfigError(
                f"distil.relations: no queries, keys and values are known in an encoder of the "
                f"family {family!r}; leave relations out"
            )
        for name, module in found.items():
            self._hooks.append(module.register_forward_hook(self._keeper(name)))
        return tuple(found)

    def _keeper(self, name: str) -> Any:
        def keep(_: nn.Module, __: Any, output: Tensor) -> None:
            if self._is_on():
                self._kept[name] = output

        return keep

    def _ask(self, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return (args, kwargs | {"output_hidden_states": True}) if self._is_on() else None

    def _keep_hidden(self, _: nn.Module, __: Any, output: Any) -> None:
        if self._is_on():
            self._hidden = output.hidden_states

    def _is_on(self) -> bool:
        return self._always or self._encoder.training


def _projections(layer: nn.Module) -> dict[str, nn.Module]:
    """A layer's projections by their own names, in the order queries, keys, values."""
    named = {name.rpartition(".")[2]: module for name, module in layer.named_modules()}
    if _JOINED in named:
        return {_JOINED: named[_JOINED]}
    for names in _SEPARATE:
        if all(name in named for name in names):
            return {name: named[name] for name in names}
    return {}


def check_layers(wanted: Sequence[int], *, depth: int, setting: str) -> None:
    """Makes sure that an encoder `depth` layers deep has the `wanted` ones.

    Raises:
        ConfigError: it has not; `setting` is the key that asks for them.
    """
    beyond = [layer for layer in wanted if layer >= depth]
    if beyond:
        raise ConfigError(f"{setting}: got {beyond[0]}, expected 0 to {depth - 1}; correct it")
