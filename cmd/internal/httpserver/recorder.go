package httpserver

import "net/http"

// Recorder remembers the status that was sent.
type Recorder struct {
	http.ResponseWriter
	Status int // 0 is none yet
}

// WriteHeader passes a status on.
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= http.StatusOK { // an informational one is not the answer
		r.Status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(b []byte) (int, error) {
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
