// ATen/cuda/CUDAContext.h names the handle and status types of three libraries whose header wheels weigh hundreds of
// megabytes. We call none of them, so the names are enough.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
