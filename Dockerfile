# syntax=docker/dockerfile:1
# Two stages. The first installs exact versions and compiles the kernels for a named CPU level; the second carries both
# and nothing that builds. The image runs as a user without a name on a read-only root file system: it writes only to
# what is mounted at /data/releases and /data/work (jobs, the nightly refresh) and to /tmp.
#
#   docker build -t xreg .
#   docker run --read-only --tmpfs /tmp -v "$PWD/demo/releases:/data/releases:ro" -p 8000:8000 xreg
#
# Kernels for other machines: --build-arg KERNEL_CPU=x86-64-v2, x86-64-v4, or generic (also for ARM).

ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
ARG KERNEL_CPU=x86-64-v3
# A cache is found again under the same path, CPU name and features: both stages say the same.
ENV NUMBA_CPU_NAME=${KERNEL_CPU} \
    NUMBA_CPU_FEATURES="" \
    XREG_KERNEL_CACHE=/opt/kernels \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/xreg
# All of the lock is fetched and checked against its hashes; what the program itself needs is installed from that.
COPY requirements.lock ./
RUN pip wheel --require-hashes --wheel-dir /wheels --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY training training
COPY service service
RUN /opt/xreg/bin/pip install --no-index --find-links /wheels . \
    && /opt/xreg/bin/pip uninstall --yes setuptools pip
# A script finds packages beside itself first: there are none in this directory, so the installed ones are compiled.
COPY deploy/kernels.py deploy/
RUN /opt/xreg/bin/python deploy/kernels.py \
    && chmod -R a=rX /opt/kernels

FROM python:${PYTHON}
ARG KERNEL_CPU=x86-64-v3
ENV NUMBA_CPU_NAME=${KERNEL_CPU} \
    NUMBA_CPU_FEATURES="" \
    XREG_KERNEL_CACHE=/opt/kernels \
    XREG_RELEASES=/data/releases \
    XREG_HOST=0.0.0.0 \
    PATH=/opt/xreg/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/xreg /opt/xreg
COPY --from=build /opt/kernels /opt/kernels
RUN install -d -o 10001 -g 10001 /data /data/releases /data/work
USER 10001:10001
WORKDIR /data
EXPOSE 8000
# Live, not ready: a service without a release yet is waiting, not ill.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('XREG_PORT', '8000') + '/health/live', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["xreg"]
CMD ["serve"]
