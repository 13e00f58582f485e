# sooner with its server, for CPUs or, by a build argument, for CUDA:
#   docker build --tag sooner .
#   docker build --tag sooner:cuda --build-arg TORCH=cu128 .
FROM python:3.12-slim

# The variant of torch's wheels: cpu, cu126, cu128, ... CUDA's libraries come with them.
ARG TORCH=cpu
ARG EXTRAS=serve,ocr
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Libraries of OCR, and the compiler that Triton and torch.compile call; versions are Debian's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3013
RUN pip install --no-cache-dir --index-url "https://download.pytorch.org/whl/${TORCH}" \
    "torch>=2.11" torchvision

WORKDIR /opt/sooner
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY miniatures miniatures
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[${EXTRAS}]" ./miniatures \
    && useradd --create-home --uid 1000 sooner

USER 1000
WORKDIR /home/sooner
EXPOSE 8000
ENTRYPOINT ["sooner"]
CMD ["--help"]
