// See cublas_v2.h.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
extern "C" const char* cusparseGetErrorString(cusparseStatus_t);
