# vitreous serve on CPUs: docs/serving.md has the commands.
FROM python:3.11-slim

# torch's CPU wheels are at an index of their own, which is smaller: see docs/serving.md
ARG PIP_EXTRA_INDEX_URL

WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY recipes recipes
COPY studies studies
COPY vitreous vitreous
RUN python -m pip install --no-cache-dir --constraint constraints.txt '.[serve,onnx]'

# Nothing is written but to /tmp, so the file system may be read-only.
WORKDIR /tmp
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["vitreous", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--help"]
