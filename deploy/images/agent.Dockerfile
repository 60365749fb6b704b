# The agent of a Kubernetes cluster; its arguments are those of `det agent run`.
# Context and build arguments: see hub.Dockerfile.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS packages
ARG EXTRAS=kubernetes
ARG PIP_NO_INDEX=
COPY . /wheels
RUN python3 -m venv /opt/detlab \
 && PIP_NO_INDEX=${PIP_NO_INDEX:-0} /opt/detlab/bin/pip install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(echo /wheels/detlab-*.whl)[${EXTRAS}]" \
 && /opt/detlab/bin/pip uninstall --quiet --yes setuptools pip

FROM ${BASE}
RUN echo 'detlab:x:1000:1000::/home/detlab:/bin/sh' >> /etc/passwd \
 && echo 'detlab:x:1000:' >> /etc/group \
 && mkdir -p /home/detlab /var/lib/detlab-agent \
 && chown -R 1000:1000 /home/detlab /var/lib/detlab-agent
COPY --from=packages /opt/detlab /opt/detlab
ENV PATH=/opt/detlab/bin:$PATH HOME=/home/detlab PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/detlab
USER 1000:1000
ENTRYPOINT ["python", "-m", "detlab_agent"]
CMD ["--help"]
