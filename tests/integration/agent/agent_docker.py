"""What the tests of the docker runtime share."""

from detlab.schemas import wire
from testbed.containers import docker_images


def python(program):
    return ["python3", "-u", "-c", program]


def exited(allocation):
    return lambda: allocation.exits


def system_mounts():
    """This machine's programs and the test environment, read-only, for the image that has no files of its own."""
    return [
        wire.Mount(host_path=str(path), container_path=str(path), read_only=True)
        for path in docker_images.host_mounts()
    ]


def in_container(
    master, entrypoint, *, image=docker_images.EMPTY, mounts=(), system=True, environment=None, **container
):
    """Launch a task in a container; further fields of the Launch and the ContainerSpec by name."""
    launch = ("owner", "slots", "bundle", "service", "user_home", "config")
    options = {name: container.pop(name) for name in launch if name in container}
    spec = wire.ContainerSpec(image=image, mounts=[*(system_mounts() if system else ()), *mounts], **container)
    return master.launch(entrypoint, runtime="docker", container=spec, environment=environment, **options)


def in_spec(kind):
    """The fields of a Launch with this runtime."""
    if kind == "process":
        return {}
    return {"runtime": kind, "container": wire.ContainerSpec(image=docker_images.EMPTY, mounts=system_mounts())}
