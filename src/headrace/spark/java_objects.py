"""Let go of Java objects as soon as Python does."""

from __future__ import annotations

from py4j.java_gateway import GatewayClient, JavaMember, JavaObject, is_magic_member
from py4j.protocol import REFERENCE_TYPE, register_output_converter


class UncachedJavaObject(JavaObject):  # type: ignore[misc]  # py4j has no types
    """A Java object that does not cache its methods.

    py4j caches each method that is called on an object, and one of every object that is an argument of a call. The method
    refers to the object: a cycle, which only Python's garbage collector ends. Until it runs, Java's heap keeps the object, and
    with it all rows of a relation.
    """

    def __getattr__(self, name: str) -> JavaMember:
        if is_magic_member(name):
            raise AttributeError(name)
        return JavaMember(name, self, self._target_id, self._gateway_client)


def release_java_objects_at_once() -> None:
    """Make py4j return objects of this class from now on, in the whole process. Idempotent."""
    register_output_converter(REFERENCE_TYPE, _java_object)


def _java_object(target_id: str, client: GatewayClient) -> JavaObject:
    return UncachedJavaObject(target_id, client)
