# What trials, commands, notebooks and shells run in. Build your own from it, or add detlab to yours in the same way.
# Context and build arguments: see hub.Dockerfile. EXTRAS=headless,lab,storage,torch,examples with a CPU build of torch
# is about 2 GB; images for GPUs take a BASE with CUDA, or the build of torch that brings it.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS packages
ARG EXTRAS=examples,headless,lab,storage,torch
ARG PIP_NO_INDEX=
COPY . /wheels
RUN python3 -m venv /opt/detlab \
 && PIP_NO_INDEX=${PIP_NO_INDEX:-0} /opt/detlab/bin/pip install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(echo /wheels/detlab-*.whl)[${EXTRAS}]" jupyterhub

FROM ${BASE}
RUN echo 'detlab:x:1000:1000::/home/detlab:/bin/sh' >> /etc/passwd \
 && echo 'detlab:x:1000:' >> /etc/group \
 && mkdir -p /home/detlab \
 && chown -R 1000:1000 /home/detlab
COPY --from=packages /opt/detlab /opt/detlab
ENV PATH=/opt/detlab/bin:$PATH HOME=/home/detlab SHELL=/bin/sh PYTHONUNBUFFERED=1
WORKDIR /home/detlab
USER 1000:1000
CMD ["jupyterhub-singleuser"]
